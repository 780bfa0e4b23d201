//! A client that says exactly the bytes it is given and keeps exactly the bytes it gets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use rustls::{ClientConnection, Stream};
use serde_json::Value;
use weir_fake_provider::http::{BodyFraming, ChunkDecoder, ResponseHead};

use super::PATIENCE;

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The head as received, its empty line included.
    pub(crate) head: Vec<u8>,
    /// The body without its transfer coding.
    pub(crate) body: Vec<u8>,
    /// The body as received.
    pub(crate) raw_body: Vec<u8>,
    /// Whether the head allows another request.
    pub(crate) keep_alive: bool,
}

impl Answer {
    /// All values of a field, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let fields = self.fields();
        fields.into_iter().filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    /// The only value of a field; panics when it stands there twice.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let mut all = self.all(name);
        assert!(all.len() <= 1, "{name} appears {} times", all.len());
        all.pop()
    }

    /// Names and values in order, names as spelled.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        let head = String::from_utf8_lossy(&self.head).into_owned();
        let lines = head.split("\r\n").skip(1).filter(|line| !line.is_empty());
        lines
            .map(|line| {
                let (name, value) = line.split_once(':').expect("a field line has a colon");
                (name.to_owned(), value.trim().to_owned())
            })
            .collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// `X-Service-Trace-Id`.
    pub(crate) fn trace_id(&self) -> String {
        self.header("x-service-trace-id").unwrap_or_else(|| panic!("no X-Service-Trace-Id: {}", self.lossy_head()))
    }

    pub(crate) fn lossy_head(&self) -> String {
        String::from_utf8_lossy(&self.head).into_owned()
    }
}

/// The connection ended before the answer was complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    /// What had arrived.
    pub(crate) received: Vec<u8>,
    /// How it ended; `None` for a close.
    pub(crate) error: Option<ErrorKind>,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let received = String::from_utf8_lossy(&self.received);
        write!(f, "the connection ended ({:?}) after {received:?}", self.error)
    }
}

/// A client connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    buf: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        Self::try_connect(addr).expect("a listening peer")
    }

    /// `None` when nobody listens.
    pub(crate) fn try_connect(addr: SocketAddr) -> Option<Self> {
        TcpStream::connect(addr).ok().map(Self::over)
    }

    /// Over a connection made elsewhere.
    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a TCP socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a TCP socket");
        Self { stream, tls: None, buf: Vec::new() }
    }

    /// Waits longer than for other answers: what is asked for is work of seconds.
    pub(crate) fn patient(self) -> Self {
        self.stream.set_read_timeout(Some(4 * PATIENCE)).expect("a TCP socket");
        self
    }

    /// Speaks TLS from here on; the handshake is made at once.
    pub(crate) fn secured(mut self, mut tls: ClientConnection) -> std::io::Result<Self> {
        while tls.is_handshaking() {
            tls.complete_io(&mut self.stream)?;
        }
        self.tls = Some(Box::new(tls));
        Ok(self)
    }

    /// The TLS session.
    pub(crate) fn tls(&self) -> &ClientConnection {
        self.tls.as_deref().expect("a client that speaks TLS")
    }

    /// Ends the TLS session and the connection as libraries do.
    pub(crate) fn close(mut self) {
        if let Some(tls) = self.tls.as_mut() {
            tls.send_close_notify();
            drop(tls.complete_io(&mut self.stream));
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.tls {
            Some(tls) => {
                let mut stream = Stream::new(&mut **tls, &mut self.stream);
                stream.write_all(bytes).and_then(|()| stream.flush())
            }
            None => self.stream.write_all(bytes),
        }
    }

    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.write(bytes.as_ref()).expect("the peer takes what is said");
    }

    /// Like [`Client::say`] where the peer may refuse before it has taken everything.
    pub(crate) fn try_say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.write(bytes.as_ref()).is_ok()
    }

    /// Says that nothing more comes.
    pub(crate) fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("an open connection");
    }

    /// The next answer; panics when it is cut.
    pub(crate) fn answer(&mut self) -> Answer {
        self.answer_to("GET").unwrap_or_else(|cut| panic!("{cut}"))
    }

    /// The next answer, interim ones included, to a request with this method.
    pub(crate) fn answer_to(&mut self, method: &str) -> Result<Answer, Cut> {
        let head = self.head()?;
        let head_bytes = self.buf.drain(..head.head_bytes).collect::<Vec<u8>>();
        let framing = if method == "HEAD" { BodyFraming::Length(0) } else { head.framing };
        let (body, used) = self.body(framing).map_err(|mut cut| {
            cut.received.splice(..0, head_bytes.iter().copied());
            cut
        })?;
        let raw_body = self.buf.drain(..used).collect();
        Ok(Answer { status: head.status, head: head_bytes, body, raw_body, keep_alive: head.keep_alive })
    }

    fn head(&mut self) -> Result<ResponseHead, Cut> {
        loop {
            if let Some(head) = ResponseHead::parse(&self.buf).expect("a well-formed response head") {
                return Ok(head);
            }
            self.more()?;
        }
    }

    fn body(&mut self, framing: BodyFraming) -> Result<(Vec<u8>, usize), Cut> {
        match framing {
            BodyFraming::Length(length) => {
                while self.buf.len() < length {
                    self.more()?;
                }
                Ok((self.buf[..length].to_vec(), length))
            }
            BodyFraming::Chunked => {
                let (mut decoder, mut body, mut used) = (ChunkDecoder::new(), Vec::new(), 0);
                loop {
                    let rest = &self.buf[used..];
                    used +=
                        decoder.decode(rest, |data| body.extend_from_slice(data)).expect("a well-formed chunked body");
                    if decoder.is_done() {
                        return Ok((body, used));
                    }
                    self.more()?;
                }
            }
            BodyFraming::UntilClose => {
                while self.more().is_ok() {}
                Ok((self.buf.clone(), self.buf.len()))
            }
        }
    }

    fn more(&mut self) -> Result<(), Cut> {
        let mut piece = [0; 64 * 1024];
        let got = match &mut self.tls {
            Some(tls) => Stream::new(&mut **tls, &mut self.stream).read(&mut piece),
            None => self.stream.read(&mut piece),
        };
        match got {
            Ok(count) if count > 0 => {
                self.buf.extend_from_slice(&piece[..count]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let waited = self.stream.read_timeout().expect("a TCP socket").unwrap_or_default();
                panic!("nothing came for {waited:?} after {:?}", String::from_utf8_lossy(&self.buf))
            }
            // A read with a timeout is not restarted by the kernel.
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Ok(_) => Err(Cut { received: self.buf.clone(), error: None }),
            Err(error) => Err(Cut { received: self.buf.clone(), error: Some(error.kind()) }),
        }
    }

    /// Reads until what has arrived and not been taken satisfies `enough`, and takes it.
    pub(crate) fn read_until(&mut self, enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        while !enough(&self.buf) {
            if let Err(cut) = self.more() {
                panic!("{cut}");
            }
        }
        std::mem::take(&mut self.buf)
    }

    /// Everything until the peer closes or resets.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.more().is_ok() {}
        std::mem::take(&mut self.buf)
    }

    /// Everything until the end, and whether that was one in order (a TLS session says farewell).
    pub(crate) fn until_end(&mut self) -> (Vec<u8>, bool) {
        loop {
            if let Err(cut) = self.more() {
                return (std::mem::take(&mut self.buf), cut.error.is_none());
            }
        }
    }

    /// Asserts that the peer closes without another byte.
    pub(crate) fn assert_closed(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "more came: {:?}", String::from_utf8_lossy(&rest));
    }

    /// Asserts that nothing arrives for `pause`; the connection stays open.
    pub(crate) fn assert_silent(&mut self, pause: Duration) {
        assert!(self.buf.is_empty(), "{:?}", String::from_utf8_lossy(&self.buf));
        self.stream.set_read_timeout(Some(pause)).expect("a TCP socket");
        let got = self.stream.read(&mut [0; 1]);
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a TCP socket");
        assert!(
            got.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)),
            "expected silence, got {got:?}"
        );
    }
}

/// One request on a connection of its own.
pub(crate) fn call(addr: SocketAddr, request: impl AsRef<[u8]>) -> Answer {
    let mut client = Client::connect(addr);
    let request = request.as_ref();
    client.say(request);
    let method = if request.starts_with(b"HEAD ") { "HEAD" } else { "GET" };
    client.answer_to(method).unwrap_or_else(|cut| panic!("{cut}"))
}
