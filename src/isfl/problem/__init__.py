"""What a user asks for: the configuration (`config.py`), and the data, split and model it names (`problem.py`)."""
