# Kernels warn that they talk to this same machine without encryption; 28 times it hides the rest.
c = get_config()  # noqa: F821
c.IPKernelApp.log_level = "ERROR"
