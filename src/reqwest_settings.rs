//! What reqwest's own builder sets, by the same names.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::HeaderValue;
use reqwest::Proxy;

use crate::client::ClientBuilder;

/// Methods of reqwest's builder as they are there.
macro_rules! same {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),*);)*) => {
        impl ClientBuilder {
            $(
                #[doc = concat!("As [`reqwest::ClientBuilder::", stringify!($name), "`].")]
                $(#[$meta])*
                pub fn $name(self, $($argument: $type),*) -> Self {
                    self.reqwest(|http| http.$name($($argument),*))
                }
            )*
        }
    };
}

same! {
    fn no_gzip();
    fn no_brotli();
    fn no_zstd();
    fn no_deflate();
    fn proxy(proxy: Proxy);
    fn no_proxy();
    fn read_timeout(timeout: Duration);
    fn connect_timeout(timeout: Duration);
    fn connection_verbose(verbose: bool);
    fn pool_idle_timeout(timeout: impl Into<Option<Duration>>);
    fn pool_max_idle_per_host(most: usize);
    fn http1_title_case_headers();
    fn http1_allow_obsolete_multiline_headers_in_responses(allow: bool);
    fn http1_ignore_invalid_headers_in_responses(ignore: bool);
    fn http1_allow_spaces_after_header_name_in_responses(allow: bool);
    fn http1_max_headers(most: usize);
    fn http1_only();
    fn http09_responses();
    fn tcp_nodelay(enabled: bool);
    fn local_address(address: impl Into<Option<IpAddr>>);
    fn tcp_keepalive(interval: impl Into<Option<Duration>>);
    fn tcp_keepalive_interval(interval: impl Into<Option<Duration>>);
    fn tcp_keepalive_retries(retries: impl Into<Option<u32>>);
    fn https_only(enabled: bool);
    fn no_hickory_dns();
    fn resolve(domain: &str, address: SocketAddr);
    fn resolve_to_addrs(domain: &str, addresses: &[SocketAddr]);
}

impl ClientBuilder {
    /// How long one attempt may take, from its sending to the end of its body, as
    /// [`reqwest::ClientBuilder::timeout`]. Waiting for one's turn does not count: that is
    /// [`RequestBuilder::within`](crate::RequestBuilder::within) and [`max_wait`](Self::max_wait).
    pub fn timeout(self, timeout: Duration) -> Self {
        self.reqwest(|http| http.timeout(timeout))
    }

    /// As [`reqwest::ClientBuilder::user_agent`].
    pub fn user_agent<V>(self, value: V) -> Self
    where
        V: TryInto<HeaderValue>,
        V::Error: Into<http::Error>,
    {
        self.reqwest(|http| http.user_agent(value))
    }
}

#[cfg(feature = "gzip")]
same! {
    #[cfg_attr(docsrs, doc(cfg(feature = "gzip")))]
    fn gzip(enable: bool);
}

#[cfg(feature = "brotli")]
same! {
    #[cfg_attr(docsrs, doc(cfg(feature = "brotli")))]
    fn brotli(enable: bool);
}

#[cfg(feature = "zstd")]
same! {
    #[cfg_attr(docsrs, doc(cfg(feature = "zstd")))]
    fn zstd(enable: bool);
}

#[cfg(feature = "deflate")]
same! {
    #[cfg_attr(docsrs, doc(cfg(feature = "deflate")))]
    fn deflate(enable: bool);
}

#[cfg(feature = "hickory-dns")]
same! {
    #[cfg_attr(docsrs, doc(cfg(feature = "hickory-dns")))]
    fn hickory_dns(enable: bool);
}

#[cfg(feature = "cookies")]
same! {
    #[cfg_attr(docsrs, doc(cfg(feature = "cookies")))]
    fn cookie_store(enable: bool);
    #[cfg_attr(docsrs, doc(cfg(feature = "cookies")))]
    fn cookie_provider(store: std::sync::Arc<impl reqwest::cookie::CookieStore + 'static>);
}

#[cfg(feature = "http2")]
same! {
    #[cfg_attr(docsrs, doc(cfg(feature = "http2")))]
    fn http2_prior_knowledge();
    #[cfg_attr(docsrs, doc(cfg(feature = "http2")))]
    fn http2_initial_stream_window_size(bytes: impl Into<Option<u32>>);
    #[cfg_attr(docsrs, doc(cfg(feature = "http2")))]
    fn http2_initial_connection_window_size(bytes: impl Into<Option<u32>>);
    #[cfg_attr(docsrs, doc(cfg(feature = "http2")))]
    fn http2_adaptive_window(enabled: bool);
    #[cfg_attr(docsrs, doc(cfg(feature = "http2")))]
    fn http2_max_frame_size(bytes: impl Into<Option<u32>>);
    #[cfg_attr(docsrs, doc(cfg(feature = "http2")))]
    fn http2_max_header_list_size(bytes: u32);
    #[cfg_attr(docsrs, doc(cfg(feature = "http2")))]
    fn http2_keep_alive_interval(interval: impl Into<Option<Duration>>);
    #[cfg_attr(docsrs, doc(cfg(feature = "http2")))]
    fn http2_keep_alive_timeout(timeout: Duration);
    #[cfg_attr(docsrs, doc(cfg(feature = "http2")))]
    fn http2_keep_alive_while_idle(enabled: bool);
}

#[cfg(any(
    feature = "default-tls",
    feature = "rustls",
    feature = "rustls-no-provider",
    feature = "native-tls",
    feature = "native-tls-no-alpn",
    feature = "native-tls-vendored",
    feature = "native-tls-vendored-no-alpn"
))]
mod tls {
    use std::any::Any;

    use reqwest::{Certificate, Identity, tls};

    use crate::client::ClientBuilder;

    same! {
        fn tls_certs_merge(certificates: impl IntoIterator<Item = Certificate>);
        fn tls_certs_only(certificates: impl IntoIterator<Item = Certificate>);
        fn add_root_certificate(certificate: Certificate);
        fn identity(identity: Identity);
        fn tls_danger_accept_invalid_hostnames(accept: bool);
        fn danger_accept_invalid_hostnames(accept: bool);
        fn tls_danger_accept_invalid_certs(accept: bool);
        fn danger_accept_invalid_certs(accept: bool);
        fn tls_sni(enabled: bool);
        fn tls_version_min(version: tls::Version);
        fn min_tls_version(version: tls::Version);
        fn tls_version_max(version: tls::Version);
        fn max_tls_version(version: tls::Version);
        fn tls_backend_preconfigured(tls: impl Any);
        fn use_preconfigured_tls(tls: impl Any);
        fn tls_info(enabled: bool);
    }
}

#[cfg(any(feature = "default-tls", feature = "rustls", feature = "rustls-no-provider"))]
mod rustls {
    use reqwest::tls::CertificateRevocationList;

    use crate::client::ClientBuilder;

    same! {
        fn tls_crls_only(lists: impl IntoIterator<Item = CertificateRevocationList>);
        fn add_crl(list: CertificateRevocationList);
        fn add_crls(lists: impl IntoIterator<Item = CertificateRevocationList>);
        fn tls_sslkeylogfile(enabled: bool);
        fn tls_backend_rustls();
        fn use_rustls_tls();
    }
}

#[cfg(any(
    feature = "native-tls",
    feature = "native-tls-no-alpn",
    feature = "native-tls-vendored",
    feature = "native-tls-vendored-no-alpn"
))]
mod native_tls {
    use crate::client::ClientBuilder;

    same! {
        fn tls_backend_native();
        fn use_native_tls();
    }
}
