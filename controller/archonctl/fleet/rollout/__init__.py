"""What Ansible carries out on many hosts, followed host by host into one result."""
