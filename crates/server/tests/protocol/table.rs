//! Classic requests and their exact replies.

/// Requests of one connection to an empty server, and its replies; `#` is any number.
pub struct Case {
    pub name: &'static str,
    pub requests: &'static str,
    pub replies: &'static str,
}

/// Line ends are written `|`, and a vertical bar `!`.
pub const CASES: &[Case] = &[
    Case { name: "get of a missing key", requests: "get a|gets a b|", replies: "END|END|" },
    Case {
        name: "set and get",
        requests: "set a 5 0 3|abc|get a|get b a c a|",
        replies: "STORED|VALUE a 5 3|abc|END|VALUE a 5 3|abc|VALUE a 5 3|abc|END|",
    },
    Case { name: "empty value", requests: "set a 0 0 0||get a|", replies: "STORED|VALUE a 0 0||END|" },
    Case {
        name: "value with line ends",
        requests: "set a 0 0 6|x|y|z|get a|",
        replies: "CLIENT_ERROR bad data chunk|ERROR|END|",
    },
    Case {
        name: "value with a line end of its own",
        requests: "set a 0 0 4|x|y|get a|",
        replies: "STORED|VALUE a 0 4|x|y|END|",
    },
    Case {
        name: "gets has a CAS number",
        requests: "set a 0 0 1|1|gets a|",
        replies: "STORED|VALUE a 0 1 #|1|END|",
    },
    Case { name: "noreply", requests: "set a 0 0 1 noreply|1|get a|", replies: "VALUE a 0 1|1|END|" },
    Case {
        name: "add and replace",
        requests: "replace a 0 0 1|1|add a 0 0 1|2|add a 0 0 1|3|replace a 7 0 1|4|get a|",
        replies: "NOT_STORED|STORED|NOT_STORED|STORED|VALUE a 7 1|4|END|",
    },
    Case {
        name: "append and prepend keep flags",
        requests: "append a 0 0 1|x|set a 3 0 2|bc|append a 9 0 1|d|prepend a 9 0 1|a|get a|",
        replies: "NOT_STORED|STORED|STORED|STORED|VALUE a 3 4|abcd|END|",
    },
    Case {
        name: "cas of a missing key and of another number",
        requests: "cas a 0 0 1 1|x|set a 0 0 1|1|cas a 0 0 1 1|x|cas a 0 0 1 0|x|get a|",
        replies: "NOT_FOUND|STORED|EXISTS|EXISTS|VALUE a 0 1|1|END|",
    },
    Case {
        name: "incr and decr",
        requests: "incr a 1|set a 2 0 2|10|incr a 5|decr a 6|get a|decr a 100|get a|incr a 18446744073709551615|incr a 1|",
        replies: "NOT_FOUND|STORED|15|9|VALUE a 2 2|9 |END|0|VALUE a 2 2|0 |END|18446744073709551615|0|",
    },
    Case {
        name: "incr of no number",
        requests: "set a 0 0 1|x|incr a 1|set b 0 0 1|1|incr b x|incr b -1|incr b|decr b 1 2 3|",
        replies: "STORED|CLIENT_ERROR cannot increment or decrement non-numeric value|STORED|\
                  CLIENT_ERROR invalid numeric delta argument|CLIENT_ERROR invalid numeric delta argument|ERROR|ERROR|",
    },
    Case {
        name: "delete",
        requests: "delete a|set a 0 0 1|1|delete a|get a|set a 0 0 1|1|delete a noreply|get a|delete a 0|delete a 0 noreply|delete a 1|",
        replies: "NOT_FOUND|STORED|DELETED|END|STORED|END|NOT_FOUND|\
                  CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]|",
    },
    Case {
        name: "touch and gat",
        requests: "touch a 10|gat 10 a|set a 4 0 1|1|touch a 0|gat 100 a b|gats 100 a|touch a -1|get a|touch a x|gat x a|gat|gat 1|",
        replies: "NOT_FOUND|END|STORED|TOUCHED|VALUE a 4 1|1|END|VALUE a 4 1 #|1|END|TOUCHED|END|\
                  CLIENT_ERROR invalid exptime argument|CLIENT_ERROR invalid exptime argument|ERROR|END|",
    },
    Case {
        name: "negative and past expiry",
        requests: "set a 0 -1 1|1|get a|set a 0 2592001 1|1|get a|set a 0 100 1|1|get a|",
        replies: "STORED|END|STORED|END|STORED|VALUE a 0 1|1|END|",
    },
    Case {
        name: "flush_all",
        requests: "set a 0 0 1|1|flush_all 100|get a|flush_all|get a|flush_all noreply|flush_all 0 noreply|flush_all x|flush_all 1 2 3|",
        replies: "STORED|OK|VALUE a 0 1|1|END|OK|END|CLIENT_ERROR invalid exptime argument|ERROR|",
    },
    Case {
        name: "malformed lines",
        requests: "|x|get|set|set a|set a 0 0|set a 0 0 1 noreply x y|GET a|gets|cas a 0 0 1|mx a|bogus a b|incr a|touch a|",
        replies: "ERROR|ERROR|ERROR|ERROR|ERROR|ERROR|ERROR|ERROR|ERROR|ERROR|ERROR|ERROR|ERROR|ERROR|",
    },
    Case {
        name: "wrong numbers in set",
        requests: "set a x 0 1|set a 0 x 1|set a 0 0 x|set a 0 0 -1|set a -1 0 1|cas a 0 0 1 x|set a 0 0 2147483647|",
        replies: "CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|\
                  CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|\
                  CLIENT_ERROR bad command line format|",
    },
    Case {
        name: "value of another length",
        requests: "set a 0 0 1|abcd|get a|set a 0 0 3|ab|xget a|",
        replies: "CLIENT_ERROR bad data chunk|ERROR|END|CLIENT_ERROR bad data chunk|END|",
    },
    Case {
        name: "bare line feeds",
        requests: "set a 0 0 1\n1|get a\n",
        replies: "STORED|VALUE a 0 1|1|END|",
    },
    Case {
        name: "many spaces",
        requests: "  set  a  0 0  1  |1|  get   a |",
        replies: "STORED|VALUE a 0 1|1|END|",
    },
    Case {
        name: "other commands",
        requests: "verbosity 1|verbosity 1 noreply|verbosity|verbosity x|shutdown|stats reset|slabs automove x|slabs|",
        replies: "OK|ERROR|CLIENT_ERROR bad command line format|ERROR: shutdown not enabled|RESET|\
                  CLIENT_ERROR bad command line format|ERROR|",
    },
    Case {
        name: "stats detail",
        requests: "stats detail dump|stats detail on|set b:1 0 0 1|x|get b:1 b:2 b|delete b:3|stats detail dump|\
                   stats detail x|stats reset|stats detail dump|stats detail off|get b:1|stats detail dump|",
        replies: "END|OK|STORED|VALUE b:1 0 1|x|END|NOT_FOUND|PREFIX b get 2 hit 1 set 1 del 1|END|\
                  CLIENT_ERROR usage: stats detail on!off!dump|RESET|END|OK|VALUE b:1 0 1|x|END|END|",
    },
];

/// The line ends of a case in full.
pub fn lines(text: &str) -> String {
    text.replace('|', "\r\n").replace('!', "|")
}
