"""Mutation testing of the numerical and the storage core: does a test that a reader finds first catch a fault?"""
