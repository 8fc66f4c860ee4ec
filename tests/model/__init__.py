"""The reference model: docs/semantics.md, implemented naively. It shares no code with the engine."""
