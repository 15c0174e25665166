"""Creates a paper kit: one folder that compares a policy with the policies of five papers.

Examples
--------
>>> import gangline as gl, tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     made = gl.paper.run(["las"], worlds=["tiresias"], quick=True, out=folder, workers=1)
...     files = gl.paper.write(made, folder)
>>> made
Paper(las: 1 world, 32 runs)
>>> [name for name in files if name.endswith(".tex")]
['table.tex', 'sensitivity.tex', 'figure.tex', 'methods.tex']
"""

from gangline.paper.folder import write
from gangline.paper.repeat import Repeated, repeat
from gangline.paper.run import Paper
from gangline.paper.run import carry_out as run
from gangline.paper.show import panels
from gangline.paper.worlds import Change, PaperWorld, world

__all__ = ["Change", "Paper", "PaperWorld", "Repeated", "panels", "repeat", "run", "world", "write"]
