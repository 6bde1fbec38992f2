-- Claims entries that were idle for a lease: those of dead consumers, and those whose retry is due.
-- KEYS[1]  the stream
-- ARGV[1]  the group
-- ARGV[2]  the consumer that claims them
-- ARGV[3]  the lease in milliseconds
-- ARGV[4]  the cursor: where to continue, '0-0' at first
-- ARGV[5]  how many to claim at most; ten times as many are examined
-- RETURNS  {the next cursor ('0-0' at the end), {{id, fields, number of deliveries, this one included}}}
local stream, group = KEYS[1], ARGV[1]
local claimed = redis.call('XAUTOCLAIM', stream, group, ARGV[2], ARGV[3], ARGV[4], 'COUNT', ARGV[5])
local entries = {}
for at, entry in ipairs(claimed[2]) do
  local pending = redis.call('XPENDING', stream, group, entry[1], entry[1], 1)[1]
  entries[at] = {entry[1], entry[2], pending and pending[4] or 1}
end
return {claimed[1], entries}
