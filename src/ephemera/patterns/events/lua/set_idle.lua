-- Sets the idle time and the number of deliveries of entries, if they are still pending for this consumer.
-- KEYS[1]  the stream
-- ARGV[1]  the group
-- ARGV[2]  the consumer
-- ARGV[3]  and following, in threes: an id, its idle time in milliseconds, its number of deliveries
-- RETURNS  how many of them are still pending for this consumer
local stream, group, consumer, changed = KEYS[1], ARGV[1], ARGV[2], 0
for at = 3, #ARGV, 3 do
  local id = ARGV[at]
  if redis.call('XPENDING', stream, group, id, id, 1, consumer)[1] then
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', ARGV[at + 1], 'RETRYCOUNT', ARGV[at + 2], 'JUSTID')
    changed = changed + 1
  end
end
return changed
