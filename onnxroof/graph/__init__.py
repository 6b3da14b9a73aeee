"""The first stage: files → graphs, free of protobuf."""
