"""archonctl: self-hosted LLM endpoints that keep their capacity promise."""

__version__ = "0.1.0"
