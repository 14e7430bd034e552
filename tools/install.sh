# Install packages at the versions of a file of constraints: PIP FILE ORIGIN ARGUMENT...
# Where one of these versions cannot be had, the newest that can be are installed, and a notice says
# so, unless the command line of make names the file.
pip=$1 file=$2 origin=$3
shift 3
$pip --constraint "$file" "$@" && exit 0
test "$origin" = file || exit 1
echo "$file has versions that cannot be installed here (above): newer ones are tried instead." >&2
$pip "$@"
