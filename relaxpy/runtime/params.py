"""Parameters in files."""

from relaxpy.exec.runtime.params import (
    load_param_dict as load_param_dict,
    load_param_dict_from_file as load_param_dict_from_file,
    save_param_dict as save_param_dict,
    save_param_dict_to_file as save_param_dict_to_file,
)
