-- Clears the use of claims, and announces it.
-- KEYS[i]  the state of claim i
-- ARGV[1]  the channel on which room is announced
-- ARGV[2]  and on, for each claim: its id, and the bounds in ms of the fixed window that its key names, or 0 0
-- RETURNS  {1, now in ms, how many had been used}; {-1, now} when a fixed window is not the current one
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local ids = {}
for claim = 1, #KEYS do
  local starts, ends = tonumber(ARGV[3 * claim]), tonumber(ARGV[3 * claim + 1])
  if ends > 0 and (now < starts or now >= ends) then return {-1, now} end
  ids[claim] = ARGV[3 * claim - 1]
end
local removed = redis.call('UNLINK', unpack(KEYS))
redis.call('PUBLISH', ARGV[1], table.concat(ids, '\n'))
return {1, now, removed}
