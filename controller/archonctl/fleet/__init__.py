"""More than one machine: placement, rollout over Ansible, what routers and monitoring are told."""
