"""A rendered release as Kubernetes manifests: the same words, variables and checks, in a pod."""
