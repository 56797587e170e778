"""Should I bother? Label counts in, advice out. No run directory needed."""
