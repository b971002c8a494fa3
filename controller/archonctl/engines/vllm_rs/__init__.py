"""vllm.rs (xinfer): what is known of its boot log."""
