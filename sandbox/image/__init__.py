"""The image that the Docker backend's containers run: what is in it, and two ways to build it.

`Dockerfile` is the usual one. `python -m sandbox.image` needs no registry and no network: it packs this interpreter,
this code and its dependencies, and imports that. Not here: running containers (`sandbox.containers`).
"""

from sandbox.image.content import CODE_LABEL, DEVICES, JAIL_ROOT, code_hash, image_tag

__all__ = ["CODE_LABEL", "DEVICES", "JAIL_ROOT", "code_hash", "image_tag"]
