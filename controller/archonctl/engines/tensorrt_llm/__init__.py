"""TensorRT-LLM: what is known of its boot log."""
