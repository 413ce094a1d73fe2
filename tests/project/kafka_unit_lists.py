"""Kafka's unit tests of tiered storage that are worth having: by class and case, the test of ours
that shows the same, or why there is none. tests/project/test_kafka_lists.py checks that each is
there.
"""

NOT_HERE = "not here: "
"""What a reason begins with; everything else is a test, as pytest names it below tests/."""

_COPY = "rlm/plans/test_copy.py"
_TASKS = "rlm/tasks/test_copy.py"
_EXPIRY = "rlm/plans/test_expiry.py"
_LINEAGE = "kip405/test_lineage.py"
_OFFLOAD = "rlm/plans/test_offload.py"
_LEDGER = "rlmm/test_ledger.py"
_MANAGER = "rlmm/test_remote_log_metadata_manager.py"
_TAIL = "rlmm/test_tail_reads.py"
_HAZARDS = "rlm/proxy/test_fetch_hazards.py"
_WAITS = "rlm/proxy/test_h20_waits.py"
_PURGATORY = "rlm/proxy/test_purgatory.py"

UNIT_LISTS: dict[str, dict[str, str]] = {
    "RemoteLogManagerTest": {
        "findHighestRemoteOffset: empty": f"{_LEDGER}::test_an_empty_ledger_answers",
        "findHighestRemoteOffset: normal": (
            f"{_LEDGER}::test_the_highest_end_is_that_of_a_segment_that_ends_inside_the_log"
        ),
        "findHighestRemoteOffset: unclean election": (
            f"{_TASKS}::test_h04_after_an_unclean_election_copying_goes_on_from_the_new_epoch"
        ),
        "copy for a stale topic of a recreated id": (
            f"{_TASKS}::test_h13_a_topic_recreated_under_its_name_ends_the_copy"
        ),
        "custom metadata larger than its limit": (
            "kip405/test_values.py::test_plugin_metadata_beyond_its_limit_is_refused"
        ),
        "a failed copy deletes what it left": (
            "rlm/tasks/test_cleanup.py::test_h06_a_broken_attempt_leaves_neither_entry_nor_object"
        ),
        "a retriable failure deletes nothing": (
            f"{_TASKS}::test_h10_unknown_outcome_of_finished_is_neither_deleted_nor_retried"
        ),
        "no upload before the metadata is ready": (
            "rlm/tasks/test_attempt.py::test_h17_nothing_is_copied_before_both_were_read"
        ),
        "the log dir of a partition changes": (
            "rlm/log_dir/test_rolls.py::test_what_is_gone_is_not_there_and_is_found_again_elsewhere"
        ),
        "buildFilteredLeaderEpochMap": f"{_LINEAGE}::test_epochs_without_records_are_dropped",
        "segmentWithinLeaderEpochs": f"{_LINEAGE}::test_within",
        "segmentWithinLeaderEpochs: overlapping segments": (
            f"{_LINEAGE}::test_overlapping_segments_of_two_leaders_are_both_within"
        ),
        "candidates: not the active segment": (
            f"{_COPY}::test_every_closed_segment_oldest_first_never_the_active_one"
        ),
        "candidates: nothing above the last stable offset": (
            f"{_COPY}::test_nothing_above_the_last_stable_offset"
        ),
        "retention by size": f"{_EXPIRY}::test_size_ends_a_segment_only_if_all_of_it_is_too_much",
        "retention by time": f"{_EXPIRY}::test_time_is_compared_strictly",
        "retention of overlapping segments": (
            f"{_EXPIRY}::test_offsets_of_overlapping_segments_are_counted_once"
        ),
        "retention while copies lag": (
            f"{_EXPIRY}::test_the_walk_stops_before_offsets_that_only_the_local_log_holds"
        ),
        "retention: a deletion failed before": (
            "rlm/tasks/test_expiry.py::test_a_store_that_does_not_delete_is_asked_again_by_the_next_run"
        ),
        "retention passes over what is being copied": (
            f"{_EXPIRY}::test_being_copied_stops_the_walk"
        ),
        "COPY_SEGMENT_STARTED counts nothing for the size": (
            f"{_EXPIRY}::test_an_attempt_counts_nothing_for_retention_by_size"
        ),
        "cancelled before the second deletion": (
            "rlm/tasks/test_expiry.py"
            "::test_a_run_that_is_cancelled_at_any_step_is_finished_by_the_next_leader"
        ),
        "no over-deletion by a fresh leader": (
            "rlm/tasks/test_expiry.py::test_h17_a_view_that_lags_is_read_to_its_end_first"
        ),
        "read: the first batch is missing": (
            f"{_LEDGER}::test_lookup_serves_the_offset_or_the_first_after_the_hole"
        ),
        "read: the first batch is larger than max bytes": (
            f"{_HAZARDS}::test_kip_74_the_first_batch_is_given_even_when_too_large"
        ),
        "read: the first batch is in a gap that compaction left": (
            f"{_HAZARDS}::test_h15_a_hole_is_answered_like_a_compaction_gap"
        ),
        "copy quota": "rlm/tasks/test_copy_quota.py::test_over_time_the_rate_is_exact",
        "throttled copies": (
            "rlm/tasks/test_copy_quota.py::test_copies_wait_outside_of_their_deadline"
        ),
        "shutdown while throttled": (
            "rlm/tasks/test_copy_quota.py::test_a_waiter_that_is_cancelled_delays_no_other"
        ),
        "copy lag: only the active segment": (
            f"{_COPY}::test_h38_what_has_ended_or_is_empty_or_is_open_is_no_lag"
        ),
        "copy lag: many segments": (
            f"{_COPY}::test_h38_the_lag_is_all_that_is_not_remote_whatever_holds_it"
        ),
        "copy lag after the leader changed": (
            f"{_TASKS}::test_h38_under_a_new_leader_epoch_the_age_starts_again"
        ),
        "findOffsetByTimestamp: epochs that are not valid": (
            "rlm/test_tier_histories.py::test_h04_no_timestamp_is_answered_out_of_a_dead_history"
        ),
        "findOffsetByTimestamp: segments that are not ready": (
            "rlm/test_tier_histories.py"
            "::test_h15_no_timestamp_is_unknown_while_the_end_is_not_settled"
        ),
        "findOffsetByTimestamp: which tier answers": (
            "rlm/proxy/test_positions.py::test_a_timestamp_is_answered_by_the_lower_of_both_tiers"
        ),
    },
    "RemoteLagCopyTest": {
        "a lag by time or by size": (
            f"{_OFFLOAD}::test_a_segment_waits_for_its_age_or_for_what_follows_it"
        ),
        "both limits, each without the other, -1 and -2": (
            f"{_OFFLOAD}::test_minus_one_and_the_one_that_is_not_set_are_as_local_retention"
        ),
        "no limit of local retention": (
            f"{_OFFLOAD}::test_without_a_limit_of_local_retention_only_the_command_copies"
        ),
        "segments are copied in order": (
            f"{_OFFLOAD}::test_copies_stop_at_the_first_segment_that_waits"
        ),
        "a lag above retention is refused": (
            f"{_OFFLOAD}::test_a_threshold_that_is_not_below_retention_is_refused_with_what_to_do"
        ),
        "a lag up to retention is accepted": (
            f"{_OFFLOAD}::test_what_is_below_retention_is_accepted"
        ),
        "topic before broker": (
            f"{_OFFLOAD}::test_the_topic_counts_before_the_rules_and_these_before_the_defaults"
        ),
        "a segment of the future": (
            "rlm/tasks/test_offload.py"
            "::test_a_segment_that_waits_is_not_behind_and_is_copied_when_it_is_old_enough"
        ),
    },
    "RemoteLogLeaderEpochStateTest": {
        "a duplicate": (
            f"{_LEDGER}::test_one_of_two_equal_segments_serves_whichever_was_written_first"
        ),
        "an overlapping segment": (
            f"{_LEDGER}::test_the_segment_of_an_offset_among_overlapping_ones"
        ),
        "several overlapping segments": (
            f"{_LEDGER}::test_of_overlapping_segments_the_one_that_reaches_furthest_serves"
        ),
        "the same start offset": (
            f"{_LEDGER}::test_segments_are_listed_by_start_offset_whatever_was_written_first"
        ),
    },
    "RemoteLogSegmentLifecycleTest": {
        "states and what is listed in each": (
            f"{_LEDGER}::test_the_life_cycle_of_segments_as_in_kafkas_own_test"
        ),
        "highest offset of an epoch": (
            NOT_HERE + "copying goes on behind the highest end within the merged lineage; what "
            "retention has deleted lies below the remote log start, which is a record of its own"
        ),
    },
    "RemoteLogMetadataCacheTest": {
        "an invalid transition is refused": (
            f"{_MANAGER}::test_states_follow_kafkas_state_machine_and_finished_may_come_back"
        ),
        "an invalid transition that was read is dropped": (
            f"{_LEDGER}::test_h03_what_a_zombie_denies_is_read_and_not_trimmed_on"
        ),
    },
    "ConsumerTaskTest": {
        "partitions are assigned and taken away": (
            NOT_HERE + "every service reads every partition of the ledger, whoever leads"
        ),
        "skipped records are read again after an assignment": (
            NOT_HERE + "no record is skipped, because every partition is assigned from the start"
        ),
        "ready on an empty topic": f"{_TAIL}::test_h17_the_replay_of_an_empty_log_is_over_at_once",
        "ready at the end of what was there": (
            f"{_TAIL}::test_h17_the_replay_is_over_with_the_last_record_that_was_there_at_the_start"
        ),
        "a fatal error closes the consumer": (
            "rlmm/test_tail.py::test_h42_a_lost_partition_is_left_and_the_others_go_on"
        ),
    },
    "TopicBasedRemoteLogMetadataManagerTest": {
        "add and update before and after leadership": (
            f"{_MANAGER}::test_h03_a_leader_of_an_older_epoch_is_fenced"
        ),
        "remoteLogSize": f"{_EXPIRY}::test_offsets_of_overlapping_segments_are_counted_once",
        "the topic does not exist": (
            "rlmm/test_waiting_for_topics.py"
            "::test_topics_that_are_not_there_are_waited_for_and_never_created"
        ),
        "the topic is configured otherwise": (
            "rlmm/test_barrier.py::test_h06_a_differently_configured_topic_is_a_problem"
        ),
        "nextSegmentWithTxnIndex": (
            f"{_TASKS}::test_h09_abort_whose_marker_lies_in_a_later_segment_is_stored"
        ),
        "a restart (RestartTest)": (
            "rlmm/test_broker_restarts.py::test_h10_all_goes_on_after_the_broker_was_killed"
        ),
        "several subscriptions (MultipleSubscriptionsTest)": (
            "rlmm/test_topics_on_kafka.py::test_a_segment_lives_and_dies_in_every_readers_view"
        ),
    },
    "RemoteIndexCacheTest": {
        "eviction by size": (
            "rlm/cache/test_single_flight.py::test_never_more_than_its_bytes_and_always_the_newest"
        ),
        "an entry larger than the cache": (
            "rlm/cache/test_single_flight.py"
            "::test_a_value_too_big_to_keep_is_given_and_drives_nothing_out"
        ),
        "concurrent reads of one entry": (
            "rlm/cache/test_single_flight.py::test_all_who_ask_at_once_share_one_load"
        ),
        "a failed load is tried again": (
            "rlm/cache/test_single_flight.py"
            "::test_a_failure_goes_to_all_who_wait_and_is_not_remembered"
        ),
        "entries that are not used for long": (
            NOT_HERE
            + "entries leave by size alone, and the index of a deleted segment is not asked for"
        ),
        "a corrupt index is fetched again": (
            "rlm/reading/test_integrity.py::test_h25_one_wrong_answer_is_not_believed"
        ),
        "a corrupt index is never believed": (
            "rlm/reading/test_integrity.py::test_g09_a_flipped_bit_of_the_indexes_is_never_believed"
        ),
        "removal during a read": (
            "rlm/cache/test_chunks.py"
            "::test_what_an_answer_refers_to_is_not_dropped_until_it_was_sent"
        ),
        "files are loaded again after a restart": (
            "rlm/cache/test_disk.py::test_what_was_written_is_read_also_after_a_restart"
        ),
        "corrupt files on disk": (
            "rlm/cache/test_disk.py::test_g09_a_flipped_bit_on_disk_is_a_miss_and_the_file_is_gone"
        ),
        "the cache is resized": (
            "rlm/cache/test_disk.py::test_g10_it_is_bounded_also_when_it_shrinks"
        ),
        "no transaction index": (
            "rlm/reading/test_remote_reader.py"
            "::test_h09_read_committed_names_the_aborted_transactions_of_the_batches_given"
        ),
        "few requests for each segment": (
            "rlm/reading/test_fairness.py::test_two_requests_a_segment_are_enough"
        ),
    },
    "DelayedRemoteFetchTest": {
        "completed by data": f"{_WAITS}::test_h20_remote_bytes_end_the_wait_at_once",
        "expiry": f"{_PURGATORY}::test_at_its_deadline_it_expires",
        "several partitions, some of which fail": (
            f"{_PURGATORY}::test_records_of_one_partition_do_not_wait_for_another_that_fails_for_now"
        ),
        "not the leader": "rlm/test_local_tier.py::test_a_partition_led_elsewhere_says_so",
    },
    "DelayedRemoteListOffsetsTest": {
        "completed by the answer of the remote tier": (
            "rlm/proxy/test_positions.py::test_list_offsets_over_both_tiers"
        ),
        "expiry": (
            "rlm/proxy/test_positions.py::test_h17_without_a_passed_barrier_clients_must_ask_again"
        ),
        "not the leader": (
            "rlm/proxy/test_positions.py"
            "::test_h17_the_remote_log_of_a_partition_that_is_led_elsewhere_is_not_known"
        ),
    },
}
