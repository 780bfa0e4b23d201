//! What is the least that passing bytes on costs with this runtime: the same ring, buffers that grow as the gateway's do, nothing read?
//!
//! A relay of bytes on one thread, a connection to the server for each of the client's. `benches/side_by_side.py --floor PATH` starts
//! it as one more target, so that a bar for the gateway can be held against what no gateway on this runtime could go below.
//!
//!     cargo build --release -p weir --example floor
//!     target/release/examples/floor 127.0.0.1:8080 127.0.0.1:9090

use std::io;
use std::net::SocketAddr;

use monoio::io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt, Splitable};
use monoio::net::{TcpListener, TcpStream};
use monoio::{IoUringDriver, RuntimeBuilder};

/// As `RING_ENTRIES` of the gateway.
const RING_ENTRIES: u32 = 1024;
/// As `READ_BYTES_START`.
const SMALL: usize = 4 * 1024;
/// As `READ_BYTES_LARGE`.
const LARGE: usize = 128 * 1024;

fn main() -> io::Result<()> {
    let mut addresses = std::env::args().skip(1).map(|text| text.parse::<SocketAddr>());
    let (Some(Ok(listen)), Some(Ok(server)), None) = (addresses.next(), addresses.next(), addresses.next()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "usage: floor LISTEN SERVER, both as ADDRESS:PORT"));
    };
    RuntimeBuilder::<IoUringDriver>::new().with_entries(RING_ENTRIES).build()?.block_on(serve(listen, server))
}

async fn serve(listen: SocketAddr, server: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    loop {
        let (client, _) = listener.accept().await?;
        monoio::spawn(async move {
            // A connection that breaks concerns its two ends, which see it.
            drop(relay(client, server).await);
        });
    }
}

async fn relay(client: TcpStream, server: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let forth = monoio::spawn(copy(from_client, to_server));
    copy(from_server, to_client).await?;
    forth.await
}

/// Passes bytes on until their end. A read that fills its buffer makes the next one larger, a small one gives it back.
async fn copy(mut from: impl AsyncReadRent, mut to: impl AsyncWriteRent) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(SMALL);
    loop {
        let (read, filled) = from.read(buffer).await;
        let count = read?;
        if count == 0 {
            return to.shutdown().await;
        }
        let (written, mut emptied) = to.write_all(filled).await;
        written?;
        emptied.clear();
        let wanted = match count {
            _ if count == emptied.capacity() => LARGE,
            ..SMALL => SMALL,
            _ => emptied.capacity(),
        };
        buffer = if wanted == emptied.capacity() { emptied } else { Vec::with_capacity(wanted) };
    }
}
