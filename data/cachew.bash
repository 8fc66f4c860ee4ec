# bash completion for cachew(1). It takes verbs and options from the command's --help, and operators from
# `cachew ops`.

_cachew_options() {
    "$1" "$2" --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p'
}

_cachew() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}
    local command=${COMP_WORDS[0]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        local verbs=$("$command" --help 2>/dev/null | sed -n 's/^  \([a-z]*\) .*/\1/p')
        COMPREPLY=($(compgen -W "$verbs --help --version" -- "$cur"))
        return
    fi
    case $prev in
    --dump | --save | --out | --verify | --index-dir | --state-dir | --data-root | --source)
        COMPREPLY=($(compgen -d -- "$cur"))
        return
        ;;
    --plugin)
        COMPREPLY=($(compgen -f -X '!*.so' -- "$cur") $(compgen -d -S / -- "$cur"))
        return
        ;;
    --state | --log | --quarantine | --token-file | --trace | --tls-ca | --tls-cert | --tls-key | \
        --unix-socket | --plot)
        COMPREPLY=($(compgen -f -- "$cur"))
        return
        ;;
    --guarantee)
        COMPREPLY=($(compgen -W "exactly-once at-most-once" -- "$cur"))
        return
        ;;
    --order)
        COMPREPLY=($(compgen -W "exact any" -- "$cur"))
        return
        ;;
    --sharding)
        COMPREPLY=($(compgen -W "dynamic off" -- "$cur"))
        return
        ;;
    --format)
        local formats="tfrecord text jsonl tar"
        [ "$verb" != photos ] || formats="folder tfrecord"
        [ "$verb" != materialize ] || formats="cachew tfrecord tar"
        COMPREPLY=($(compgen -W "$formats" -- "$cur"))
        return
        ;;
    --compression)
        COMPREPLY=($(compgen -W "auto none gzip zlib zstd bzip2 xz" -- "$cur"))
        return
        ;;
    --memory)
        COMPREPLY=($(compgen -W "128M 256M 512M 1G 4G 16G" -- "$cur"))
        return
        ;;
    --policy)
        COMPREPLY=($(compgen -W \
            "auto cachew-atc22 cachew-atc22-code pecan pecan-code hpa fixed: oracle" -- "$cur"))
        return
        ;;
    --objective)
        COMPREPLY=($(compgen -W "time cost" -- "$cur"))
        return
        ;;
    --provisioner)
        COMPREPLY=($(compgen -W "local" -- "$cur"))
        return
        ;;
    --transport)
        COMPREPLY=($(compgen -W "auto shm unix tcp" -- "$cur"))
        return
        ;;
    --log-format)
        COMPREPLY=($(compgen -W "text json" -- "$cur"))
        return
        ;;
    --service | --dispatcher | --listen | --http | --advertise)
        COMPREPLY=($(compgen -W "127.0.0.1:5050" -- "$cur"))
        return
        ;;
    --threads | --seed | --epochs | --batches | --rank | --world-size | --state-every | --set | --wait | \
        --run | --seconds | --best-of | --job | --workers | --drain-timeout | --min-workers | \
        --max-workers | --worker-cpus | --price-client | --price-worker | --limit-rate | --pool | --share | \
        --weight | --priority | --quota | --scaling | --name | --cancel | --pause | --resume | --drain | \
        --interval | --host | --days | --count | --shards)
        return
        ;;
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$(_cachew_options "$command" "$verb")" -- "$cur"))
        return
    fi
    case $verb in
    ops) COMPREPLY=($(compgen -W "$("$command" ops 2>/dev/null | cut -d' ' -f1)" -- "$cur")) ;;
    run | materialize | explain | bench | simulate)
        COMPREPLY=($(compgen -f -X '!*.json' -- "$cur") $(compgen -d -S / -- "$cur"))
        ;;
    keys)
        if [ "$COMP_CWORD" -eq 2 ]; then
            COMPREPLY=($(compgen -W "init" -- "$cur"))
        else
            COMPREPLY=($(compgen -d -- "$cur"))
        fi
        ;;
    jobs) COMPREPLY=($(compgen -W "explain" -- "$cur")) ;;
    photos) COMPREPLY=($(compgen -d -- "$cur")) ;;
    index | ls | trace) COMPREPLY=($(compgen -f -- "$cur")) ;;
    esac
}

complete -o filenames -F _cachew cachew
