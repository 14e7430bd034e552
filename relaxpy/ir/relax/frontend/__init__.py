"""Front ends: other ways to describe models, which become modules of Relax."""
