#!/bin/sh
# From the condition to a taint: a node whose condition GpuNodeUnhealthy is True gets ringleader/unhealthy=true:NoSchedule, one where
# it is False loses it; where it is Unknown or missing nothing changes. Once a call: a cron job, or a CronJob with an image that has
# kubectl and sh. Needs get, list and patch of nodes. KUBECTL names another program; options are passed to it.
#
#   deploy/node-problem-detector/taint.sh [--context NAME …]
#   kubectl create clusterrole ringleader-taint --verb=get,list,patch --resource=nodes
kubectl=${KUBECTL:-kubectl}
nodes=$("$kubectl" "$@" get nodes -o jsonpath='{range .items[*]}{.metadata.name}{" is-"}{.status.conditions[?(@.type=="GpuNodeUnhealthy")].status}{" has-"}{.spec.taints[?(@.key=="ringleader/unhealthy")].effect}{"\n"}{end}') || exit
failed=0
while read -r node is has; do
  case "$is $has" in
    "is-True has-") "$kubectl" "$@" taint node "$node" ringleader/unhealthy=true:NoSchedule || failed=1 ;;
    "is-False has-"?*) "$kubectl" "$@" taint node "$node" ringleader/unhealthy:NoSchedule- || failed=1 ;;
  esac
done <<END
$nodes
END
exit "$failed"
