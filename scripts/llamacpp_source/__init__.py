"""Reads the command line of llama-server out of the C++ sources of llama.cpp, without compiling them."""
