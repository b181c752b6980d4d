"""The adapter between LangGraph and the store: translate, delegate, nothing else."""
