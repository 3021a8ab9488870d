"""What attention heads follow: gold trees and coreference, and the study that compares."""
