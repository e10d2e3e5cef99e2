"""Running cells: a manager that starts one worker process per cell, and the lines that pass between them.

``worker`` and ``protocol`` are worker side; ``manager`` and ``progress`` are manager side. This file imports neither.
"""
