//! Where a process that lends its engine is reached: `http://HOST:PORT`.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::str::FromStr;

use autotune_http::access::plain_address;

/// A host and a port that speak plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// As it stands in addresses, an IPv6 address in brackets.
    host: String,
    port: u16,
}

impl FromStr for Address {
    type Err = String;

    /// Reads `http://HOST:PORT`; the port must be named, since both sides take it from here.
    fn from_str(text: &str) -> Result<Self, String> {
        let hint = || "hint: http://HOST:PORT and nothing else, such as http://10.0.0.2:7787".to_owned();
        let url = plain_address(text).map_err(|_| hint())?;
        let plain = url.scheme() == "http" && url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        // The parser forgets a port that is the scheme's own.
        let named = text.trim_end_matches('/').rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        match (url.host_str(), named) {
            (Some(host), Some(port)) if plain && port > 0 => Ok(Self { host: host.to_owned(), port }),
            _ => Err(hint()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

impl Address {
    /// Takes the port on this machine: at a loopback address as it is written, otherwise at all addresses of its family. The address by which
    /// others reach a machine need not be one that the machine knows.
    pub fn listen(&self) -> io::Result<TcpListener> {
        let any = (IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED));
        let bind = |ip: IpAddr| TcpListener::bind((ip, self.port));
        match self.host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) if ip.is_loopback() => bind(ip),
            Ok(IpAddr::V4(_)) => bind(any.0),
            Ok(IpAddr::V6(_)) => bind(any.1),
            // A name may mean both families; a system without the newer one has the older.
            Err(_) => bind(any.1).or_else(|error| match error.kind() {
                io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
                _ => bind(any.0),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_with_its_port_and_nothing_else() {
        let read = |text: &str| text.parse::<Address>().map(|address| address.to_string());
        for good in ["http://a:7787", "http://10.0.0.2:80", "http://[::1]:7787", "http://tuner-0.tuner:1"] {
            assert_eq!(read(good).unwrap(), good);
        }
        assert_eq!(read("http://A:7787/"), read("http://a:7787"));
        for bad in ["a:7787", "http://a", "https://a:1", "http://a:0", "http://a:1/x", "http://a:1?b", "http://u:p@a:1"]
        {
            assert!(read(bad).unwrap_err().contains("http://HOST:PORT"), "{bad}");
        }
    }

    #[test]
    fn loopback_stays_on_the_machine_and_all_else_is_heard_everywhere() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let heard = |host: &str| {
            let address: Address = format!("http://{host}:{port}").parse().unwrap();
            address.listen().unwrap().local_addr().unwrap().ip()
        };
        assert_eq!(heard("127.0.0.1"), Ipv4Addr::LOCALHOST);
        assert_eq!(heard("192.0.2.1"), Ipv4Addr::UNSPECIFIED, "an address that others may reach us by");
        assert!(heard("tuner-1.tuner").is_unspecified());
    }
}
