"""The kernels: each file of Triton code has a torch reference beside it, ``*_reference.py``.

Importing this package imports no Triton; the references need torch alone.
"""
