"""Do attention heads follow grammar? Gold trees and coreference, observations, and the study."""
