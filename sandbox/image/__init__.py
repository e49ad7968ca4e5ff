"""The image that the Docker backend's containers run: what is in it, and two ways to build it.

`Dockerfile` is the usual one. `python -m sandbox.image` needs no registry and no network: it packs this interpreter,
this code and its dependencies, and imports that.
"""
