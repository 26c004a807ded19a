// ep/src/uccl_ep.cc  (as installed, git describe: v0.3.1-22)
std::tuple<...> Buffer::internode_dispatch(std::uintptr_t x_ptr, int num_tokens, int hidden, /* ... */) {
  if (num_tokens == 0) {
    // empty input on this rank
    return make_empty_dispatch_result();
  }
  EP_HOST_ASSERT(x_ptr != 0);
  if (cached_mode) {
    uccl::internode::cached_notify(/* ... */);
  } else {
    *moe_recv_counter = -1;
    uccl::internode::notify_dispatch(/* num_tokens_per_rank, ..., barrier_signal_ptrs, rank, comm_stream */);
    auto start_time = std::chrono::high_resolution_clock::now();
    while (true) {            // wait until every peer has announced its counts
      if (*moe_recv_counter >= 0 && all_expert_counters_ready()) break;
      if (elapsed(start_time) > NUM_CPU_TIMEOUT_SECS)
        throw std::runtime_error("DeepEP error: timeout (dispatch CPU)");
    }
  }
  // ...
}
