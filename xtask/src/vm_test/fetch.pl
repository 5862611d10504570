# Prints a file of another machine's HTTP server: `fetch.pl 10.79.0.1 8080 /file`. The shell's own
# program resolves names first, which fails in a statically linked program.

my ($AF_INET, $SOCK_STREAM) = (2, 1);
my ($address, $port, $path) = @ARGV;
alarm 100;
socket(my $server, $AF_INET, $SOCK_STREAM, 0) or die "socket: $!";
connect($server, pack 'S n C4 x8', $AF_INET, $port, split /\./, $address) or die "connect: $!";
syswrite $server, "GET $path HTTP/1.0\r\n\r\n";
binmode STDOUT;
local $/ = "\r\n\r\n";
my $head = <$server>;
die "the server says $head" unless $head =~ m{^HTTP/1\.[01] 200 };
local $/ = \65536;
print while <$server>;
