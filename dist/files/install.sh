#!/bin/sh
# Installs Weir from this folder: install.sh [--prefix /usr/local]. With root and systemd also the service, its user and its settings.
set -eu
prefix=/usr/local
while [ $# -gt 0 ]; do
    case "$1" in
    --prefix) prefix=${2:?a folder is missing behind --prefix}; shift 2 ;;
    *) echo "install.sh: $1 is unknown; accepted is --prefix FOLDER" >&2; exit 2 ;;
    esac
done
here=$(cd "$(dirname "$0")" && pwd)
install -D -m 0755 "$here/weir" "$prefix/bin/weir"
install -D -m 0644 "$here/weir.1" "$prefix/share/man/man1/weir.1"
install -D -m 0644 "$here/completions/weir.bash" "$prefix/share/bash-completion/completions/weir"
install -D -m 0644 "$here/completions/_weir" "$prefix/share/zsh/site-functions/_weir"
install -D -m 0644 "$here/completions/weir.fish" "$prefix/share/fish/vendor_completions.d/weir.fish"
echo "installed $prefix/bin/weir"
if [ "$(id -u)" -eq 0 ] && [ -d /run/systemd/system ]; then
    install -D -m 0644 "$here/weir.sysusers" /usr/lib/sysusers.d/weir.conf
    systemd-sysusers weir.conf
    [ -e /etc/weir/weir.yaml ] || install -D -m 0644 "$here/weir.yaml" /etc/weir/weir.yaml
    # For secrets: readable by root alone.
    [ -e /etc/default/weir ] || install -D -m 0600 "$here/weir.default" /etc/default/weir
    for unit in "$here"/*.service "$here"/*.socket "$here"/*.timer; do
        [ -e "$unit" ] || continue
        sed "s|/usr/bin/weir|$prefix/bin/weir|" "$unit" >"/etc/systemd/system/$(basename "$unit")"
    done
    systemctl daemon-reload
    echo "start it with: systemctl enable --now weir.socket weir.service"
else
    echo "run it with: $prefix/bin/weir --config FILE"
fi
