//! Programs with several workers, and the requests for each of them.

use serde::{Deserialize, Serialize};

use crate::program::Program;

/// A program with several workers, and the kind of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasuredProgram {
    /// nginx, a file of 1 KiB, kept connections.
    #[serde(rename = "nginx-1k")]
    Nginx1K,
    /// nginx, a file of 1 MiB, kept connections.
    #[serde(rename = "nginx-1m")]
    Nginx1M,
    /// nginx, a file of 1 KiB, a connection a request.
    NginxShort,
    /// nginx, which forwards each request to php-fpm.
    PhpFpm,
    /// Varnish in front of Apache: all answers are cached.
    #[serde(rename = "varnish-0")]
    Varnish0,
    /// Varnish in front of Apache: two answers in five are not cached.
    #[serde(rename = "varnish-40")]
    Varnish40,
    /// Varnish in front of Apache: no answer is cached.
    #[serde(rename = "varnish-100")]
    Varnish100,
    /// PostgreSQL, a query a transaction.
    Postgresql,
    /// PostgreSQL, a connection a transaction: a process is forked for each.
    PostgresqlConnect,
    /// MariaDB, a query a transaction.
    Mariadb,
    /// Redis with threads that read and write.
    Redis,
    /// memcached with several threads.
    Memcached,
    /// Processes with an event loop each, which share a listener.
    EventLoops,
    /// Processes with an event loop each, a connection a request.
    EventLoopsShort,
    /// Threads that receive connections from the accepting thread.
    ThreadPool,
    /// Processes that all accept.
    Prefork,
    /// An accepting process that passes descriptors to others.
    Passing,
    /// A process for each connection.
    Forking,
    /// Processes with an event loop each, and a connection to another server for each client's.
    Proxy,
}

/// The facts about a service.
#[derive(Debug)]
struct Facts {
    service: MeasuredProgram,
    /// The service's name in plans.
    name: &'static str,
    /// Title for people.
    title: &'static str,
    /// The kind of its workers; `None` if the number of clients determines them.
    workers: Option<&'static str>,
    /// Whether its clients may use a Unix socket.
    has_unix: bool,
    programs: &'static [Program],
}

const NGINX: Program = ("nginx", "nginx-light");
const POSTGRESQL: &[Program] = &[
    ("initdb", "postgresql"),
    ("postgres", "postgresql"),
    ("pgbench", "postgresql"),
    ("setpriv", "util-linux"),
];
const VARNISH: &[Program] = &[("varnishd", "varnish"), ("apache2", "apache2-bin")];
/// The compiler of this crate's own programs.
const COMPILER: &[Program] = &[("cc", "gcc")];

const fn facts(
    service: MeasuredProgram,
    name: &'static str,
    title: &'static str,
    workers: Option<&'static str>,
    has_unix: bool,
    programs: &'static [Program],
) -> Facts {
    Facts {
        service,
        name,
        title,
        workers,
        has_unix,
        programs,
    }
}

/// All services, in the order of their titles' subjects.
const FACTS: &[Facts] = {
    use MeasuredProgram as S;
    let (processes, threads) = (Some("worker"), Some("thread"));
    &[
        facts(
            S::Nginx1K,
            "nginx-1k",
            "nginx, 1 KB, connections that stay",
            processes,
            true,
            &[NGINX],
        ),
        facts(
            S::Nginx1M,
            "nginx-1m",
            "nginx, 1 MB, connections that stay",
            processes,
            true,
            &[NGINX],
        ),
        facts(
            S::NginxShort,
            "nginx-short",
            "nginx, 1 KB, a connection a request",
            processes,
            true,
            &[NGINX],
        ),
        facts(
            S::PhpFpm,
            "php-fpm",
            "nginx in front of php-fpm",
            processes,
            true,
            &[NGINX, ("php-fpm", "php-fpm")],
        ),
        facts(
            S::Varnish0,
            "varnish-0",
            "Varnish in front of Apache, 0 % misses",
            Some("pool of threads"),
            false,
            VARNISH,
        ),
        facts(
            S::Varnish40,
            "varnish-40",
            "Varnish in front of Apache, 40 % misses",
            Some("pool of threads"),
            false,
            VARNISH,
        ),
        facts(
            S::Varnish100,
            "varnish-100",
            "Varnish in front of Apache, 100 % misses",
            Some("pool of threads"),
            false,
            VARNISH,
        ),
        facts(
            S::Postgresql,
            "postgresql",
            "PostgreSQL, pgbench -S",
            None,
            true,
            POSTGRESQL,
        ),
        facts(
            S::PostgresqlConnect,
            "postgresql-connect",
            "PostgreSQL, pgbench -S -C",
            None,
            true,
            POSTGRESQL,
        ),
        facts(
            S::Mariadb,
            "mariadb",
            "MariaDB, sysbench oltp_point_select",
            None,
            true,
            &[
                ("mariadbd", "mariadb-server"),
                ("mariadb-install-db", "mariadb-server"),
                ("sysbench", "sysbench"),
            ],
        ),
        facts(
            S::Redis,
            "redis",
            "Redis with io-threads, GET",
            threads,
            true,
            &[("redis-server", "redis-server")],
        ),
        facts(
            S::Memcached,
            "memcached",
            "memcached, get",
            threads,
            true,
            &[("memcached", "memcached")],
        ),
        facts(
            S::EventLoops,
            "event-loops",
            "event loops that share a listener, connections that stay",
            processes,
            true,
            COMPILER,
        ),
        facts(
            S::EventLoopsShort,
            "event-loops-short",
            "event loops that share a listener, a connection a request",
            processes,
            true,
            COMPILER,
        ),
        facts(
            S::ThreadPool,
            "thread-pool",
            "threads behind an acceptor, a connection a request",
            threads,
            true,
            COMPILER,
        ),
        facts(
            S::Prefork,
            "prefork",
            "processes that all accept, a connection a request",
            processes,
            true,
            COMPILER,
        ),
        facts(
            S::Passing,
            "passing",
            "a parent that passes descriptors, a connection a request",
            processes,
            true,
            COMPILER,
        ),
        facts(
            S::Forking,
            "forking",
            "a process for each connection",
            None,
            true,
            COMPILER,
        ),
        facts(
            S::Proxy,
            "proxy",
            "a proxy with connections on both sides",
            processes,
            true,
            COMPILER,
        ),
    ]
};

impl MeasuredProgram {
    /// All services, in the order of reports.
    pub fn all() -> impl Iterator<Item = Self> {
        FACTS.iter().map(|facts| facts.service)
    }

    /// The service with this name in plans.
    pub fn named(name: &str) -> Option<Self> {
        let known = FACTS.iter().find(|facts| facts.name == name);
        known.map(|facts| facts.service)
    }

    fn facts(self) -> &'static Facts {
        // A test checks that each service has its line, in the order of the enumeration.
        &FACTS[self as usize]
    }

    /// The program's name in plans.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Title for people.
    pub fn title(self) -> &'static str {
        self.facts().title
    }

    /// The kind of its workers; `None` if it has a process or a thread for each client.
    pub(crate) fn worker(self) -> Option<&'static str> {
        self.facts().workers
    }

    /// Whether the number of its workers can be chosen.
    pub fn has_workers(self) -> bool {
        self.worker().is_some()
    }

    /// Whether its clients may use a Unix socket.
    pub fn has_unix(self) -> bool {
        self.facts().has_unix
    }

    /// Required programs, with the Debian packages that have them.
    pub fn programs(self) -> &'static [Program] {
        self.facts().programs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_has_facts_in_order() {
        for (index, facts) in FACTS.iter().enumerate() {
            assert_eq!(facts.service as usize, index, "{}", facts.name);
            assert_eq!(MeasuredProgram::named(facts.name), Some(facts.service));
            assert!(!facts.programs.is_empty() && !facts.title.is_empty());
            let written = serde_json::to_value(facts.service).unwrap();
            assert_eq!(written, facts.name);
        }
        assert_eq!(
            MeasuredProgram::all().count(),
            MeasuredProgram::Proxy as usize + 1
        );
        assert_eq!(MeasuredProgram::named("nowhere"), None);
    }
}
