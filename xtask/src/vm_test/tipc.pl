# Exchanges messages over TIPC between two virtual machines. `serve` answers them. `ask NODE` sends
# messages of many lengths and expects each back unchanged. Every Debian has Perl, and Perl has
# sockets of any family.

my ($AF_TIPC, $SOCK_RDM, $SOCK_SEQPACKET, $TYPE) = (30, 4, 5, 18888);
my ($RANGE, $ADDRESS, $CLUSTER) = (1, 2, 2);

open(my $identity, '-|', 'tipc node get identity') or die "tipc: $!";
my ($own) = (join '', <$identity>) =~ /vm(\d)/ or die "no identity";

# struct sockaddr_tipc: the service of a node, for datagrams, or 100 more for connections.
sub range { pack 'S C c L L L', $AF_TIPC, $RANGE, $CLUSTER, $TYPE, $_[0], $_[0] }
sub service { pack 'S C c L L L', $AF_TIPC, $ADDRESS, 0, $TYPE, $_[0], 0 }

sub serve {
    socket(my $datagrams, $AF_TIPC, $SOCK_RDM, 0) or die "socket: $!";
    bind($datagrams, range($own)) or die "bind: $!";
    socket(my $listener, $AF_TIPC, $SOCK_SEQPACKET, 0) or die "socket: $!";
    bind($listener, range($own + 100)) or die "bind: $!";
    listen($listener, 8) or die "listen: $!";
    if (fork == 0) {
        while (1) {
            my $from = recv($datagrams, my $message, 66000, 0);
            send($datagrams, $message, 0, $from) if defined $from;
        }
    }
    while (1) {
        next unless accept(my $connection, $listener);
        my $message;
        while (defined recv($connection, $message, 66000, 0) && length $message) {
            send($connection, $message, 0) or last;
        }
    }
}

sub ask {
    my ($node) = @_;
    alarm 60;
    socket(my $datagrams, $AF_TIPC, $SOCK_RDM, 0) or die "socket: $!";
    socket(my $connection, $AF_TIPC, $SOCK_SEQPACKET, 0) or die "socket: $!";
    # The other node's services become known a moment after the link is up.
    my $tries = 0;
    until (connect($connection, service($node + 100))) {
        die "connect: $!" if ++$tries > 100;
        select undef, undef, undef, 0.1;
    }
    my $count = 0;
    for my $length (1, 2, 63, 100, 1000, 1449, 1500, 5000, 20000, 66000, (64) x 100) {
        my $message = join '', map { chr(($_ * 7 + $length) % 256) } 1 .. $length;
        send($datagrams, $message, 0, service($node)) or die "send: $!";
        my $answer;
        defined recv($datagrams, $answer, 66000, 0) or die "recv: $!";
        die "an answer of $length bytes differs" unless $answer eq $message;
        send($connection, $message, 0) or die "send: $!";
        defined recv($connection, $answer, 66000, 0) or die "recv: $!";
        die "an answer of $length bytes differs over a connection" unless $answer eq $message;
        $count += 2;
    }
    print "$count messages, all answered\n";
}

my ($what, $node) = @ARGV;
$what eq 'serve' ? serve() : ask($node);
