//! Tenants of a trace in every way of reading and writing it.

use std::path::{Path, PathBuf};

use flashwright_workload::Workload;
use flashwright_workload::trace::{
    Access, Format, OpenOptions, Replay, ReplayConfig, Target, TenantsFrom, Writer, Written, open,
};
use tempfile::TempDir;

const KVCACHE: &str = "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n\
    1,a,1,GET,2,10,0,0,366387042,3003229276\n2,b,1,SET,1,10,0,0,web,\n3,c,1,GET,1,10,0,0,,\n\
    4,d,1,DELETE,1,0,0,0,366387042,3003229276\n";
const CDN: &str = "timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,TTL,SamplingRate,cache_hit,item_value,RequestHandler,cdn_content_type_id,vip_type\n\
    1000,k,1,100,110,10,-1,-1,60,1,0,0,24,-,4\n2000,l,1,100,110,10,-1,-1,60,1,0,0,7,9,4\n";

fn write(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// All accesses and the names of their tenants, `-` for none.
fn read(path: &Path, format: &str, tenants: TenantsFrom) -> Result<(Vec<Access>, Vec<String>), String> {
    let options = OpenOptions { tenants, ..OpenOptions::default() };
    let mut trace = open(&[path], Some(format), &options).map_err(|error| error.to_string())?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch).map_err(|error| error.to_string())? {
        all.extend_from_slice(&batch);
    }
    let names = trace.tenants();
    let name = |access: &Access| match access.tenant {
        Some(tenant) => names.of(tenant).unwrap().to_string(),
        None => "-".to_owned(),
    };
    let message = all.iter().map(name).collect();
    Ok((all, message))
}

fn names(text: &str, format: &str, tenants: TenantsFrom) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    read(&write(&folder, "trace.csv", text), format, tenants).map(|(_, names)| names)
}

fn columns(names: &[&str]) -> TenantsFrom {
    TenantsFrom::Columns(names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn each_format_has_its_own_tenant_columns() {
    let storage =
        "op_time,block_id,io_size,io_offset,user_name,user_namespace,op_name\n1,b,1,0,u,n,getChunkData.X\n";
    let plain = "ts,key,op,size,tenant\n1,k,GET,1,someone else\n2,k,GET,1,\n";
    for (format, text, expected) in [
        (
            "kvcache",
            KVCACHE,
            &["366387042/3003229276", "366387042/3003229276", "web", "-", "366387042/3003229276"][..],
        ),
        ("cdn", CDN, &["24/-/4", "7/9/4"]),
        ("storage", storage, &["n/u"]),
        ("twitter", "0,key,3,10,12,get,0\n0,key,3,10,,get,0\n", &["12", "-"]),
        ("plain", plain, &["someone else", "-"]),
        ("plain", "ts,key,op,size\n1,k,GET,1\n", &["-"]),
    ] {
        assert_eq!(names(text, format, TenantsFrom::Usual).unwrap(), expected, "{format}");
        let nobody = vec!["-".to_owned(); expected.len()];
        assert_eq!(names(text, format, TenantsFrom::Nothing).unwrap(), nobody, "{format}");
    }
}

#[test]
fn configured_tenant_columns_are_used_or_rejected() {
    assert_eq!(names(CDN, "cdn", columns(&["vip_type", "requesthandler"])).unwrap(), ["4/24", "4/7"]);
    assert_eq!(names(KVCACHE, "kvcache", columns(&["cache_hits"])).unwrap(), ["0"; 5]);
    for (text, format, chosen, message) in [
        (CDN, "cdn", columns(&["viptype"]), "the header has no column `viptype` that is not used already"),
        (CDN, "cdn", columns(&["TTL"]), "the header has no column `TTL` that is not used already"),
        (
            KVCACHE,
            "kvcache",
            columns(&["usecase", "sub_usecase", "ttl"]),
            "`kvcache` traces take the tenant from at most 2 columns, not from usecase,sub_usecase,ttl",
        ),
        ("1 2 3\n", "webcachesim", columns(&["a"]), "`webcachesim` traces have no such columns"),
    ] {
        let error = names(text, format, chosen).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

/// `csv` has one tenant column with any header name.
#[test]
fn table_takes_the_tenant_from_a_configured_column() {
    let table = "time,id,size,who,client\n1,a,10,x,p\n2,b,20,,q\nclient,who,size,id,time\nr,y,20,b,3\n";
    assert_eq!(names(table, "csv", TenantsFrom::Usual).unwrap(), ["p", "q", "r"]);
    assert_eq!(names(table, "csv", columns(&["WHO"])).unwrap(), ["x", "-", "y"]);
    let listed = "csv:key=2,size=3,tenant=client";
    assert_eq!(names(table, listed, columns(&["who"])).unwrap()[..2], ["x", "-"]);
    for (chosen, message) in [
        (columns(&["whom"]), "the header has no column `whom` that is not used already"),
        (columns(&["size"]), "the header has no column `size` that is not used already"),
        (
            columns(&["who", "client"]),
            "`csv` traces take the tenant from at most one column, not from who,client",
        ),
    ] {
        let error = names(table, "csv", chosen).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

/// A headerless file has no column names to find a tenant column by.
#[test]
fn tenant_column_of_a_headerless_trace_is_rejected() {
    let error = names("0,5,GET,105\n1,6,GET,7\n", "plain", columns(&["foo"])).unwrap_err();
    assert!(error.contains("the file has no header to find the column `foo` by"), "{error}");
    assert_eq!(names("0,5,GET,105\n", "plain", TenantsFrom::Usual).unwrap(), ["-"]);
}

/// Both columns exist, but the format supports only one.
#[test]
fn too_many_tenant_columns_are_reported_by_number() {
    let error = names("ts,key,op,size,host,tenant\n0,5,GET,1,a,b\n", "plain", columns(&["host", "tenant"]));
    let error = error.unwrap_err();
    assert!(
        error.contains("`plain` traces take the tenant from at most one column, not from host,tenant"),
        "{error}"
    );
}

#[test]
fn repeated_header_in_another_order_keeps_the_tenant_column() {
    let first = "key,op,size,host\n7,GET,100,a\n";
    let chosen = |text: &str| names(&format!("{first}{text}"), "kvcache", columns(&["host"]));
    assert_eq!(chosen("host,size,op,key\nb,200,GET,8\n").unwrap(), ["a", "b"]);
    // A header without the configured column is an invalid row and changes nothing.
    assert_eq!(chosen("size,op,key\n8,GET,200,b\n").unwrap(), ["a", "b"]);
    let remark = "# host,size,op,key\nb,200,GET,8\n";
    assert_eq!(names(remark, "kvcache", columns(&["host"])).unwrap(), ["b"]);
}

#[test]
fn plain_stores_tenants_and_other_formats_count_losses() {
    let folder = tempfile::tempdir().unwrap();
    let (accesses, message) =
        read(&write(&folder, "kv.csv", KVCACHE), "kvcache", TenantsFrom::Usual).unwrap();
    let trace = open(
        &[folder.path().join("kv.csv")],
        Some("kvcache"),
        &OpenOptions { tenants: TenantsFrom::Usual, ..OpenOptions::default() },
    );
    let mut trace = trace.unwrap();
    while trace.next_batch(&mut Vec::new()).unwrap() {}
    let convert = |name: &str, target: Target| -> Written {
        let mut writer =
            Writer::create(&folder.path().join(name), target).unwrap().with_tenants(trace.tenants());
        writer.write(&accesses).unwrap();
        writer.finish().unwrap()
    };
    let kept = convert("kept.csv", Target::Plain { ttl: true, tenant: true });
    assert_eq!((kept.tenants_left_out, kept.accesses), (0, 5));
    assert_eq!(read(&folder.path().join("kept.csv"), "plain", TenantsFrom::Usual).unwrap().1, message);
    assert_eq!(convert("lost.csv", Target::PLAIN).tenants_left_out, 4);
    assert_eq!(convert("lost.tr", Target::Webcachesim).tenants_left_out, 3, "the whole delete is lost");
    assert_eq!(convert("lost.bin", Target::OracleGeneral).tenants_left_out, 3);
}

/// `x,y` and `x,z` once both read back as `x`.
#[test]
fn tenant_name_with_a_comma_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let text = "time;key;size;tenant\n1;1;10;x,y\n2;2;10;x,z\n3;3;10;\"\"q\"\"\n4;4;10;\"r\n";
    let format = "csv:time,key,size,tenant";
    let options = OpenOptions { tenants: TenantsFrom::Usual, ..OpenOptions::default() };
    let mut trace = open(&[write(&folder, "table.csv", text)], Some(format), &options).unwrap();
    let mut batch = Vec::new();
    assert!(trace.next_batch(&mut batch).unwrap());
    let path = folder.path().join("plain.csv");
    let target = Target::Plain { ttl: false, tenant: true };
    let mut writer = Writer::create(&path, target).unwrap().with_tenants(trace.tenants());
    writer.write(&batch).unwrap();
    let written = writer.finish().unwrap();
    assert_eq!((written.accesses, written.tenants_left_out), (4, 3));
    assert_eq!(read(&path, "plain", TenantsFrom::Usual).unwrap().1, ["-", "-", "-", "\"r"]);
}

#[test]
fn replay_returns_the_names_of_its_tenants() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "kv.csv", KVCACHE);
    let replay = Replay::new(ReplayConfig::new(vec![path], Format::named("kvcache").unwrap()));
    let mut message = Vec::new();
    for source in &mut replay.sources(2, 0).unwrap() {
        while let Some(request) = source.next() {
            let name = request.tenant.map(|tenant| replay.tenants().of(tenant).unwrap().to_string());
            message.push((String::from_utf8(request.key.to_vec()).unwrap(), name));
        }
    }
    message.sort();
    let (one, web) = (Some("366387042/3003229276".to_owned()), Some("web".to_owned()));
    let expected = [("a", one.clone()), ("b", web), ("c", None), ("d", one)];
    assert_eq!(message, expected.map(|(key, name)| (key.to_owned(), name)));
}
