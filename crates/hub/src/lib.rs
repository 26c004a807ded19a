//! Where agents of many nodes meet: a directory, or etcd.
