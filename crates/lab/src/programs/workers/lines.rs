//! The configuration of each service, and its shell lines.

use std::time::Duration;

use super::clients::{self, Exchange};
use super::job::{Job, JobLines, ListeningPlace};
use super::said;
use crate::host;
use crate::programs::place::{Tier, Way};
use crate::settings::Settings;
use crate::workload::MeasuredProgram;

/// Most threads of a generator, if there are cores for them.
const MOST_THREADS: usize = 8;

/// Length of a value in memcached and Redis.
const VALUE: usize = 1024;

/// A request of the small servers' protocol that keeps the connection; the next constant closes it.
const KEEP: char = 'k';
const CLOSE: char = 'c';

/// Bytes of a request in that protocol; the next constant is the answer's.
const REQUEST: usize = 64;
const ANSWER: usize = 1024;

/// An nginx with several workers, which may forward requests.
const NGINX: &str = "daemon off; worker_processes WORKERS; pid ROOT/nginx.pid; error_log ROOT/nginx.log; USER
events { worker_connections 1024; }
http { access_log off; sendfile on; keepalive_requests 1000000000;
    client_body_temp_path ROOT/body; proxy_temp_path ROOT/proxy;
    fastcgi_temp_path ROOT/fastcgi; uwsgi_temp_path ROOT/uwsgi; scgi_temp_path ROOT/scgi;
    server { listen LISTEN; root ROOT;
        location = /answer.php {
            fastcgi_pass BACK;
            fastcgi_param SCRIPT_FILENAME ROOT/answer.php;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param QUERY_STRING $query_string;
        } } }
";

/// A php-fpm with as many workers.
const PHP_FPM: &str = "[global]
daemonize = no
error_log = ROOT/php-fpm.log
[www]
USER
listen = LISTEN
listen.mode = 0666
listen.backlog = 511
pm = static
pm.max_children = WORKERS
";

/// PHP's script: an answer of known length, and some computing.
const PHP: &str = "<?php
$text = '';
for ($i = 0; $i < 32; $i++) { $text .= md5((string) $i); }
header('Content-Length: ' . strlen($text));
echo $text;
";

/// Length of the script's answer.
const PHP_ANSWER: u64 = 1024;

/// A Varnish that caches all answers, in front of the Apache at the other port.
const VARNISH: &str = "vcl 4.1;
backend default { .host = \"HOST\"; .port = \"PORT\"; }
sub vcl_backend_response { set beresp.ttl = 600s; }
";

/// Databases without a password, owned by a user other than root.
const INITDB: &str = "rm -rf postgresql && mkdir postgresql && chown postgres: postgresql && \
    setpriv --reuid=postgres --regid=postgres --init-groups \
    initdb -D $DIR/postgresql -U bench --auth=trust --no-sync >/dev/null && \
    echo host all all all trust >> postgresql/pg_hba.conf";

/// No data are written: a query is the cost.
const POSTGRES: &str = "exec setpriv --reuid=postgres --regid=postgres --init-groups postgres -D $DIR/postgresql \
    -c port=$PORT -c listen_addresses=ADDRESSES -c unix_socket_directories=$DIR/sockets \
    -c fsync=off -c autovacuum=off -c max_connections=100 -c shared_buffers=64MB";

/// Fills the database once in a run.
const FILL_POSTGRES: &str = "[ -e filled.postgresql ] || \
    { pgbench -i -q -s 1 -h HOST -p $PORT -U bench postgres >fill.log 2>&1 && : > filled.postgresql; } \
    || { cat fill.log >&2; exit 1; }";

const MARIADB_INSTALL: &str = "rm -rf mariadb && mkdir mariadb && chown mysql: mariadb && \
    mariadb-install-db --no-defaults --user=mysql --datadir=$DIR/mariadb --skip-test-db \
    --auth-root-authentication-method=normal >/dev/null && \
    mkdir mariadb/bench && chown mysql: mariadb/bench";

const MARIADB: &str = "exec mariadbd --no-defaults --user=mysql --datadir=$DIR/mariadb --port=$PORT \
    --bind-address=0.0.0.0 --socket=$SOCKET --pid-file=$DIR/mariadb/mariadb.pid --skip-grant-tables \
    --skip-name-resolve --skip-log-bin --innodb-flush-log-at-trx-commit=0 --innodb-fast-shutdown=2 \
    --innodb-buffer-pool-size=64M NETWORK";

const SYSBENCH: &str = "sysbench oltp_point_select HOST --mysql-user=root --mysql-db=bench --tables=1 \
    --table-size=10000 --db-ps-mode=disable";

/// The lines of a job, with all files that it needs.
pub(super) fn of(job: Job, spot: &ListeningPlace<'_>, settings: &Settings) -> Result<JobLines, String> {
    use MeasuredProgram as S;
    match job.service {
        S::Nginx1K | S::NginxShort => nginx(job, spot, settings, "1k", 1 << 10),
        S::Nginx1M => nginx(job, spot, settings, "1m", 1 << 20),
        S::PhpFpm => php_fpm(job, spot, settings),
        S::Varnish0 => varnish(job, spot, settings, 0),
        S::Varnish40 => varnish(job, spot, settings, 40),
        S::Varnish100 => varnish(job, spot, settings, 100),
        S::Postgresql | S::PostgresqlConnect => postgresql(job, spot),
        S::Mariadb => mariadb(job, spot),
        S::Redis => redis(job, spot, settings),
        S::Memcached => memcached(job, spot, settings),
        S::EventLoops
        | S::EventLoopsShort
        | S::ThreadPool
        | S::Prefork
        | S::Passing
        | S::Forking
        | S::Proxy => small(job, spot, settings),
    }
}

/// Whether each request has a connection of its own.
fn is_short(service: MeasuredProgram) -> bool {
    use MeasuredProgram as S;
    matches!(
        service,
        S::NginxShort | S::EventLoopsShort | S::ThreadPool | S::Prefork | S::Passing | S::Forking
    )
}

/// Threads of a client program: at most its connections, and at most the cores.
fn threads(job: Job) -> usize {
    let cores = host::usable_cores().len();
    usize::from(job.clients).min(cores).clamp(1, MOST_THREADS)
}

/// The lines with this crate's clients.
fn own(
    job: Job,
    spot: &ListeningPlace<'_>,
    settings: &Settings,
    exchange: Exchange,
    (server, back): (String, Option<String>),
) -> Result<JobLines, String> {
    let span = Duration::from_millis;
    let order = clients::Order {
        clients: job.clients,
        threads: threads(job),
        exchange,
        is_short: is_short(job.service),
        warm_up: span(settings.warm_up_ms),
        span: span(settings.span_ms),
        patience: span(settings.patience_ms),
    };
    let order = serde_json::to_string(&order).map_err(|error| error.to_string())?;
    let order = spot.write("order.json", &order)?;
    let (name, server_at) = (clients::NAME, spot.reach(Tier::Front));
    Ok(JobLines {
        back,
        server,
        client: format!("exec \"$TOEHOLD\" {name} {order} {server_at}"),
        read: said::own,
    })
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Writes a configuration of nginx, and returns the line of its server.
fn nginx_line(job: Job, spot: &ListeningPlace<'_>) -> Result<String, String> {
    let at = |server| match spot.way {
        Way::Unix => format!("unix:{}", spot.path(server)),
        _ if server == Tier::Back => spot.reach(server),
        _ => spot.listen(server),
    };
    let text = NGINX
        .replace("ROOT", &spot.files.path().display().to_string())
        .replace("WORKERS", &job.workers.to_string())
        .replace("LISTEN", &at(Tier::Front))
        .replace("BACK", &at(Tier::Back))
        .replace("USER", if is_root() { "user root;" } else { "" });
    let path = spot.write("workers-nginx.conf", &text)?;
    Ok(format!("exec nginx -c {path}"))
}

fn nginx(
    job: Job,
    spot: &ListeningPlace<'_>,
    settings: &Settings,
    file: &str,
    length: u64,
) -> Result<JobLines, String> {
    let exchange = Exchange::Http {
        file: file.into(),
        length,
        misses: 0,
    };
    let server = nginx_line(job, spot)?;
    own(job, spot, settings, exchange, (server, None))
}

fn php_fpm(job: Job, spot: &ListeningPlace<'_>, settings: &Settings) -> Result<JobLines, String> {
    let program = crate::programs::find("php-fpm").ok_or("php-fpm is missing")?;
    spot.write("answer.php", PHP)?;
    let user = if is_root() {
        "user = www-data\ngroup = www-data"
    } else {
        ""
    };
    let listen = match spot.way {
        Way::Unix => spot.path(Tier::Back),
        _ => format!("0.0.0.0:{}", spot.listen(Tier::Back)),
    };
    let text = PHP_FPM
        .replace("ROOT", &spot.files.path().display().to_string())
        .replace("WORKERS", &job.workers.to_string())
        .replace("LISTEN", &listen)
        .replace("USER", user);
    let path = spot.write("php-fpm.conf", &text)?;
    let back = format!("exec {} -n --fpm-config {path}", program.display());
    let exchange = Exchange::Http {
        file: "answer.php".into(),
        length: PHP_ANSWER,
        misses: 0,
    };
    let server = nginx_line(job, spot)?;
    own(job, spot, settings, exchange, (server, Some(back)))
}

fn varnish(job: Job, spot: &ListeningPlace<'_>, settings: &Settings, misses: u8) -> Result<JobLines, String> {
    let text = VARNISH
        .replace("HOST", spot.way.address())
        .replace("PORT", &spot.listen(Tier::Back));
    let path = spot.write("varnish.vcl", &text)?;
    let server = format!(
        "exec varnishd -F -j none -T none -n $DIR/varnish -a 0.0.0.0:$PORT -f {path} -s malloc,64m \
         -p vsl_space=1M -p thread_pools={} -p thread_pool_min=20",
        job.workers
    );
    let back = "PORT=$BACK exec apache2 -DFOREGROUND -f $DIR/apache.conf".to_owned();
    let exchange = Exchange::Http {
        file: "1k".into(),
        length: 1 << 10,
        misses,
    };
    own(job, spot, settings, exchange, (server, Some(back)))
}

fn postgresql(job: Job, spot: &ListeningPlace<'_>) -> Result<JobLines, String> {
    spot.make_once("postgresql", "make a cluster of databases", INITDB)?;
    let (addresses, host) = match spot.way {
        Way::Unix => ("''", "$DIR/sockets"),
        _ => ("0.0.0.0", "$ADDRESS"),
    };
    let connect = match job.service {
        MeasuredProgram::PostgresqlConnect => "-C ",
        _ => "",
    };
    let (fill, threads) = (FILL_POSTGRES.replace("HOST", host), threads(job));
    Ok(JobLines {
        back: None,
        server: POSTGRES.replace("ADDRESSES", addresses),
        client: format!(
            "{fill}; exec pgbench -S -n {connect}-c {} -j {threads} -T $SPAN -h {host} -p $PORT -U bench postgres",
            job.clients
        ),
        read: said::pgbench,
    })
}

fn mariadb(job: Job, spot: &ListeningPlace<'_>) -> Result<JobLines, String> {
    spot.make_once("mariadb", "make a directory of databases", MARIADB_INSTALL)?;
    let (network, host) = match spot.way {
        Way::Unix => ("--skip-networking", "--mysql-socket=$SOCKET"),
        _ => ("", "--mysql-host=$ADDRESS --mysql-port=$PORT"),
    };
    let sysbench = SYSBENCH.replace("HOST", host);
    let fill = format!(
        "[ -e filled.mariadb ] || {{ {sysbench} prepare >fill.log 2>&1 && : > filled.mariadb; }} \
         || {{ cat fill.log >&2; exit 1; }}"
    );
    Ok(JobLines {
        back: None,
        server: MARIADB.replace("NETWORK", network),
        client: format!(
            "{fill}; exec {sysbench} --threads={} --time=$SPAN run",
            job.clients
        ),
        read: said::sysbench,
    })
}

fn redis(job: Job, spot: &ListeningPlace<'_>, settings: &Settings) -> Result<JobLines, String> {
    let listen = match spot.way {
        Way::Unix => "--port 0 --unixsocket $SOCKET",
        _ => "--port $PORT --bind 0.0.0.0",
    };
    let reads = if job.workers > 1 {
        " --io-threads-do-reads yes"
    } else {
        ""
    };
    let server = format!(
        "exec redis-server {listen} --protected-mode no --save '' --dir $DIR --io-threads {}{reads}",
        job.workers
    );
    let kept = Kept {
        set: format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${VALUE}\r\n{}\r\n", value()),
        done: "+OK\r\n",
        get: "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n",
        answer: format!("${VALUE}\r\n{}\r\n", value()),
    };
    stored(job, spot, settings, kept, server)
}

fn memcached(job: Job, spot: &ListeningPlace<'_>, settings: &Settings) -> Result<JobLines, String> {
    let listen = match spot.way {
        Way::Unix => "-s $SOCKET -a 0777",
        _ => "-l 0.0.0.0 -p $PORT -U 0",
    };
    let user = if is_root() { "-u root " } else { "" };
    let server = format!("exec memcached {user}{listen} -t {} -c 1024", job.workers);
    let kept = Kept {
        set: format!("set key 0 0 {VALUE}\r\n{}\r\n", value()),
        done: "STORED\r\n",
        get: "get key\r\n",
        answer: format!("VALUE key 0 {VALUE}\r\n{}\r\nEND\r\n", value()),
    };
    stored(job, spot, settings, kept, server)
}

/// The requests that set and get a value.
struct Kept {
    set: String,
    done: &'static str,
    get: &'static str,
    answer: String,
}

fn value() -> String {
    "a".repeat(VALUE)
}

/// Clients of a store of values.
fn stored(
    job: Job,
    spot: &ListeningPlace<'_>,
    settings: &Settings,
    kept: Kept,
    server: String,
) -> Result<JobLines, String> {
    let exchange = Exchange::Plain {
        first: Some((kept.set, kept.done.into())),
        request: kept.get.into(),
        answer: kept.answer.len(),
    };
    own(job, spot, settings, exchange, (server, None))
}

/// The lines of a small server of this crate.
fn small(job: Job, spot: &ListeningPlace<'_>, settings: &Settings) -> Result<JobLines, String> {
    spot.write("workers.c", include_str!("workers.c"))?;
    let compile = "cc -O2 -pthread -o workers workers.c";
    spot.make_once("workers", "compile servers", compile)?;
    let mode = match job.service {
        MeasuredProgram::EventLoopsShort => "event-loops",
        other => other.name(),
    };
    let line = |mode: &str, server| {
        let (workers, at) = (job.workers, spot.listen(server));
        format!("exec $DIR/workers {mode} {workers} {at}")
    };
    let (server, back) = match job.service {
        MeasuredProgram::Proxy => {
            let proxy = format!("{} {}", line(mode, Tier::Front), spot.reach(Tier::Back));
            (proxy, Some(line("event-loops", Tier::Back)))
        }
        _ => (line(mode, Tier::Front), None),
    };
    let first = if is_short(job.service) { CLOSE } else { KEEP };
    let exchange = Exchange::Plain {
        first: None,
        request: first.to_string().repeat(REQUEST),
        answer: ANSWER,
    };
    own(job, spot, settings, exchange, (server, back))
}
