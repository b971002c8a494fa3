"""The actions of ``archonctl fleet``, a module each: SUMMARY, ``configure(parser)`` and ``run(args, out)``."""
