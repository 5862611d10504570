//! TcpListener, TcpStream and Poll on a Toehold node.
