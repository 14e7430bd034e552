"""The passes that change the layouts of tensors."""
