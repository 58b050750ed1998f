package redisstore

// Connections returns the number of connections to Redis now, and how many of them are idle.
func (s *Store) Connections() (total, idle int) {
	stats := s.client.PoolStats()
	return int(stats.TotalConns), int(stats.IdleConns)
}
