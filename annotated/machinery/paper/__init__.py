"""The paper's own PDF: its sections, paragraphs and quotations."""
