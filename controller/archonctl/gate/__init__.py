"""What can be known before an engine is touched: declarations, files and releases judged without hardware or network.

``endpoint.check_endpoint`` judges one declaration, ``paths.check_paths`` whatever lies on disk. Both return findings;
nothing here starts, stops or asks a running engine.
"""
