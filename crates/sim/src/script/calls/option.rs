//! Socket options in the syntax of scripts.

use core::time::Duration;

use toehold_stack::SocketOption;

use crate::script::parse::{number, seconds, switch};
use crate::script::settings::congestion;

pub(super) fn option(words: &[&str]) -> Result<SocketOption, String> {
    let [name, value] = *words else {
        return Err("an option and its value".into());
    };
    let small = || number(value).map(|value| value as u8);
    Ok(match name {
        "nodelay" => SocketOption::NoDelay(switch(value)?),
        "cork" => SocketOption::Cork(switch(value)?),
        "quickack" => SocketOption::QuickAck(switch(value)?),
        "keepalive" => SocketOption::Keepalive(switch(value)?),
        "urgent_inline" => SocketOption::UrgentInline(switch(value)?),
        "reuse_address" => SocketOption::ReuseAddress(switch(value)?),
        "keepalive_idle" => SocketOption::KeepaliveIdle(seconds(value)?),
        "keepalive_interval" => SocketOption::KeepaliveInterval(seconds(value)?),
        "keepalive_probes" => SocketOption::KeepaliveProbes(small()?),
        "user_timeout" => SocketOption::UserTimeout(seconds(value)?),
        "linger" => SocketOption::Linger(linger(value)?),
        "send_buffer" => SocketOption::SendBuffer(number(value)?),
        "receive_buffer" => SocketOption::ReceiveBuffer(number(value)?),
        "unsent_low_water" => SocketOption::UnsentLowWater(number(value)?),
        "low_water" => SocketOption::ReceiveLowWater(number(value)?),
        "max_segment" => SocketOption::MaxSegment(number(value)? as u16),
        "traffic_class" => SocketOption::TrafficClass(small()?),
        "fast_open" => SocketOption::FastOpen(number(value)?),
        "fast_open_connect" => SocketOption::FastOpenConnect(switch(value)?),
        "fast_open_no_cookie" => SocketOption::FastOpenNoCookie(switch(value)?),
        "defer_accept" => SocketOption::DeferAccept(number(value)?),
        "congestion" => SocketOption::Congestion(congestion(value)?),
        _ => return Err(format!("`{name}` is no option")),
    })
}

fn linger(value: &str) -> Result<Option<Duration>, String> {
    if value == "off" {
        Ok(None)
    } else {
        seconds(value).map(Some)
    }
}
