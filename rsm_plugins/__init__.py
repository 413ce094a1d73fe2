"""The remote stores behind one contract, in process and over gRPC."""
