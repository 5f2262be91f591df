"""The report of a run: a folder of HTML that opens from disk.

It reads run folders and runs no code that they name. No torch.
"""
