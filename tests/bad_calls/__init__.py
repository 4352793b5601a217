"""Tables of calls that are refused.

A row is (call, exception, text). The message begins with the text, in which " ... " stands for
anything. tests/robustness/test_bad_input.py makes every call.
"""
