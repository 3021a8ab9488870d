"""From the name of a corpus to sentence pairs and their ids."""
