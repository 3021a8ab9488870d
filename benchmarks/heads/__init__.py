"""Whether attention heads follow grammar: annotated sentences, observations, and the study."""
